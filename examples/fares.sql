-- # For each taxi, how many trips within a minute were cheaper than its own: a stream with itself.
-- # First: thetastream generate fares examples/data/fares
-- checkpoint = "out/fares.checkpoint"
-- trigger = "available now"
-- output_mode = "update"
-- delay = "2 seconds"
--
-- [streams.trips]
-- format = "parquet"
-- path = "data/fares/trips"
-- time = "t"
--
-- [sink]
-- format = "noop"

SELECT ONLINE T1.taxi, count(*) AS cheaper, avg(T2.fare) AS their_fare
FROM trips T1 JOIN trips T2
   ON T1.fare > T2.fare
WITHIN 1 minute
GROUP BY T1.taxi
