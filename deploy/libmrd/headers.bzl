"""The headers of a cc_library and of all that it depends on, generated ones included, as files."""

def _headers_impl(ctx):
    return [DefaultInfo(files = ctx.attr.library[CcInfo].compilation_context.headers)]

headers = rule(
    implementation = _headers_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
)
