-- # Readings where the voltage drops and the current rises between input and output.
-- # First: thetastream generate power examples/data/power --rows 500
-- checkpoint = "out/power.checkpoint"
-- trigger = "available now"
-- delay = "2 seconds"
--
-- [streams.R]
-- format = "parquet"
-- path = "data/power/r"
-- time = "t"
--
-- [streams.S]
-- format = "parquet"
-- path = "data/power/s"
-- time = "t"
--
-- [sink]
-- format = "parquet"
-- path = "out/power"

SELECT *
FROM R JOIN S
   ON R.V1 > S.V2 AND R.I1 < S.I2
WINDOW w AS (RANGE INTERVAL '1' SECOND PRECEDING)
