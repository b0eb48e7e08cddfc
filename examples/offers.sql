-- # Rides that could serve an order: same zone, cheaper, at most 5 metres away, within 10 minutes.
-- # First: thetastream generate city examples/data/city
-- checkpoint = "out/offers.checkpoint"
-- trigger = "available now"
-- delay = "5 seconds"
--
-- [streams.orders]
-- format = "parquet"
-- path = "data/city/orders"
-- time = "placed_at"
-- options.maxFilesPerTrigger = 5
--
-- [streams.rides]
-- format = "parquet"
-- path = "data/city/rides"
-- time = "seen_at"
-- options.maxFilesPerTrigger = 5
--
-- [sink]
-- format = "parquet"
-- path = "out/offers"

SELECT orders.order_id, rides.ride_id, round(orders.fare - rides.fare, 2) AS margin
FROM orders, rides
WHERE orders.zone = rides.zone
  AND orders.fare > rides.fare
  AND abs(orders.x - rides.x) <= 5
WITHIN 10 minutes
