"""tf.train.Example without TensorFlow: one record at a time, or many as columns."""
