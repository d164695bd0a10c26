"""tf.train.Example's messages in protobuf's own (upb), in a pool of their own: TensorFlow may be there."""

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

BYTES, FLOAT, INT64 = 1, 2, 3
_FIELDS = {  # message: (field, number, type, "repeated", "map" of, or the oneof)
    "BytesList": [("value", 1, "BYTES", "repeated")],
    "FloatList": [("value", 1, "FLOAT", "packed")],
    "Int64List": [("value", 1, "INT64", "packed")],
    "Feature": [
        ("bytes_list", 1, "BytesList", "oneof"),
        ("float_list", 2, "FloatList", "oneof"),
        ("int64_list", 3, "Int64List", "oneof"),
    ],
    "Features": [("feature", 1, "Feature", "map")],
    "FeatureList": [("feature", 1, "Feature", "repeated")],
    "FeatureLists": [("feature_list", 1, "FeatureList", "map")],
    "Example": [("features", 1, "Features", "")],
    "SequenceExample": [("context", 1, "Features", ""), ("feature_lists", 2, "FeatureLists", "")],
}
_PACKAGE = "croupier.test"
_Field = descriptor_pb2.FieldDescriptorProto


def _type(field, kind):
    if kind in _FIELDS:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind}")


def _messages():
    file = descriptor_pb2.FileDescriptorProto(name="croupier_test.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for title, number, kind, how in fields:
            field = message.field.add(name=title, number=number)
            field.label = (
                _Field.LABEL_REPEATED if how in ("repeated", "packed", "map") else _Field.LABEL_OPTIONAL
            )
            if how == "map":
                entry = message.nested_type.add(name=f"{title.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                for place, part in enumerate(("STRING", kind), 1):
                    one = entry.field.add(name=("key", "value")[place - 1], number=place, label=1)
                    _type(one, part)
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{name}.{entry.name}"
                continue
            _type(field, kind)
            if how == "oneof":
                field.oneof_index = 0
        if name == "Feature":
            message.oneof_decl.add(name="kind")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)


_CLASSES = _messages()
Example = _CLASSES[f"{_PACKAGE}.Example"]
SequenceExample = _CLASSES[f"{_PACKAGE}.SequenceExample"]
Feature = _CLASSES[f"{_PACKAGE}.Feature"]


def value_of(feature):
    """(kind, values): ints, the bits of floats, or bytes; (0, []) where no kind is set."""
    which = feature.WhichOneof("kind")
    if which is None:
        return 0, []
    values = list(getattr(feature, which).value)
    if which == "float_list":
        return FLOAT, np.array(values, np.float32).view(np.uint32).tolist()
    return (BYTES if which == "bytes_list" else INT64), values


def parse(payload):
    """{name: (kind, values)}; ValueError where protobuf refuses."""
    return {name: value_of(feature) for name, feature in _parsed(Example, payload).features.feature.items()}


def parse_sequence(payload):
    """(context, {name: [(kind, values), ...]})"""
    sequence = _parsed(SequenceExample, payload)
    context = {name: value_of(feature) for name, feature in sequence.context.feature.items()}
    lists = sequence.feature_lists.feature_list
    return context, {name: [value_of(step) for step in steps.feature] for name, steps in lists.items()}


def _parsed(kind, payload):
    message = kind()
    try:
        message.ParseFromString(bytes(payload))
    except Exception as error:
        raise ValueError(str(error)) from None
    return message


def set_feature(feature, kind, values):
    """Give a Feature message a kind and values."""
    which = {BYTES: feature.bytes_list, FLOAT: feature.float_list, INT64: feature.int64_list}.get(kind)
    if which is not None:
        which.SetInParent()
        which.value.extend(values)


def _entry(message, name, which):
    """The bytes of a map that has this entry alone."""
    alone = type(message)()
    getattr(alone, which)[name].CopyFrom(getattr(message, which)[name])
    return alone.SerializeToString(deterministic=True)


def _in_order(message, which):
    """A message that is a map, in the order of the names' bytes, which is that of protobuf's C++ and Java.

    upb's own deterministic order puts "ab" before "a", and otherwise is the same.
    """
    names = sorted(getattr(message, which), key=str.encode)
    return b"".join(_entry(message, name, which) for name in names)


def _framed(number, content):
    size, head = len(content), bytearray([number << 3 | 2])
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + content


def build(features):
    """The deterministic bytes of {name: (kind, values)}."""
    example = Example()
    example.features.SetInParent()
    for name, (kind, values) in features.items():
        set_feature(example.features.feature[name], kind, values)
    made = _framed(1, _in_order(example.features, "feature"))
    if not any(one != two and two.startswith(one) for one in features for two in features):
        assert made == example.SerializeToString(deterministic=True)
    return made


def build_sequence(context, lists):
    """The deterministic bytes of a SequenceExample."""
    sequence = SequenceExample()
    for name, (kind, values) in context.items():
        set_feature(sequence.context.feature[name], kind, values)
    for name, steps in lists.items():
        made = sequence.feature_lists.feature_list[name]
        for kind, values in steps:
            set_feature(made.feature.add(), kind, values)
    context = _in_order(sequence.context, "feature")
    return _framed(1, context) + _framed(2, _in_order(sequence.feature_lists, "feature_list"))
