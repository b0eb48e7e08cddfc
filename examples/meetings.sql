-- # Vehicles of three fleets that are close to each other at the same time.
-- # First: thetastream generate gps examples/data/gps
-- checkpoint = "out/meetings.checkpoint"
-- trigger = "available now"
-- delay = "5 seconds"
--
-- [streams.r]
-- format = "parquet"
-- path = "data/gps/r"
-- time = "t"
--
-- [streams.s]
-- format = "parquet"
-- path = "data/gps/s"
-- time = "t"
--
-- [streams.t]
-- format = "parquet"
-- path = "data/gps/t"
-- time = "t"
--
-- [sink]
-- format = "parquet"
-- path = "out/meetings"

SELECT r.vehicle AS first, s.vehicle AS second, t.vehicle AS third, r.x, r.y
FROM r, s, t
WHERE abs(r.x - s.x) <= 100 AND abs(s.y - t.y) <= 100 AND abs(t.x - r.x) <= 100
WITHIN 20 seconds
