# "Training" that breaks in its first attempt, as training does. The second attempt goes through.
echo "attempt $AWS_BATCH_JOB_ATTEMPT on $NVIDIA_VISIBLE_DEVICES"
epoch=1
while [ "$epoch" -le "$EPOCHS" ]; do
  sleep 0.7
  echo "epoch $epoch/$EPOCHS done"
  if [ "$AWS_BATCH_JOB_ATTEMPT" = 1 ] && [ "$epoch" = 3 ]; then
    echo "CUDA error: illegal memory access (made up for the demo)" >&2
    exit 1
  fi
  epoch=$((epoch + 1))
done
