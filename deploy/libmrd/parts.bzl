"""The parts of a cc_library and of all that it depends on, as files."""

def _headers_impl(ctx):
    return [DefaultInfo(files = ctx.attr.library[CcInfo].compilation_context.headers)]

# Headers, generated ones included.
headers = rule(
    implementation = _headers_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
)

def _objects_impl(ctx):
    objects = []
    for input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        for library in input.libraries:
            objects += library.pic_objects or []
    return [DefaultInfo(files = depset(objects))]

# Objects. Of libraries a linker takes what is asked for, which in a shared one is nothing.
objects = rule(
    implementation = _objects_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
)
