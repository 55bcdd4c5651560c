# One shard of the training data: every child of the array takes its own.
echo "shard $AWS_BATCH_JOB_ARRAY_INDEX of $AWS_BATCH_JOB_ARRAY_SIZE: begin"
sleep "0.$((5 + AWS_BATCH_JOB_ARRAY_INDEX % 5))"
echo "shard $AWS_BATCH_JOB_ARRAY_INDEX: done"
