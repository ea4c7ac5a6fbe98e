"""The one proto rule: the system's protoc and grpc_cpp_plugin."""

def mrd_cc_proto(name, srcs, import_prefix, imports = [], deps = [], visibility = None):
    """A cc_library of messages and gRPC services.

    Args:
      name: the library.
      srcs: .proto files of this package, by their path in it.
      import_prefix: this package's folder; imports and #includes are relative to it.
      imports: .proto files of another library that they import, with what those import.
      deps: the libraries of `imports`.
      visibility: of the library.
    """
    stems = [src[:-len(".proto")] for src in srcs]
    headers = [stem + ext for stem in stems for ext in [".pb.h", ".grpc.pb.h"]]
    sources = [stem + ext for stem in stems for ext in [".pb.cc", ".grpc.pb.cc"]]
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = headers + sources,
        cmd = " ".join([
            "/usr/bin/protoc --fatal_warnings -I" + import_prefix,
            "--cpp_out=$(RULEDIR) --grpc_out=$(RULEDIR)",
            "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
        ] + ["$(location %s)" % src for src in srcs]),
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        # Generated code is not held to the project's warnings.
        copts = ["-w"],
        includes = ["."],
        visibility = visibility,
        deps = deps + [
            "@system//:absl",
            "@system//:grpc",
            "@system//:protobuf",
        ],
    )
