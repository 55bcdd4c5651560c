"""CloudWatch's metrics: what was measured of jobs, under the names that SageMaker's and Batch's users know."""
