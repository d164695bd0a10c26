"""DeepVariant's shuffle: the flags of its two scripts, and the outputs that its training reads.

    job           all of it, from flags to receipt
    beam          Beam's own flags: explained, as nothing of Beam runs
    labels        how many records of each class
    example_info  what make_examples says about its images, carried over
    config        the DeepVariantDatasetConfig

The scripts are DeepVariant's tools/shuffle_tfrecords_beam.py and shuffle_tfrecords_lowmem.py, which is
TFrecordShuffler.
"""
