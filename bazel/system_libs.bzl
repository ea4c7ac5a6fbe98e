"""System libraries as cc_library targets, found by pkg-config.

Headers lie in the compiler's own directories, so a target is link options and defines only. Each target carries a
generated header with the versions found: when a library is upgraded, its dependents are compiled anew (Bazel does not
watch system headers).
"""

def _pkg_config(ctx, args):
    result = ctx.execute(["pkg-config"] + args)
    if result.return_code != 0:
        fail("pkg-config %s: %s\nInstall the packages of deploy/debian-packages.txt." % (
            " ".join(args),
            result.stderr.strip() or "not found",
        ))
    return result.stdout.strip()

def _unique(flags):
    # -l flags keep their last place (the linker resolves from left to right), others their first.
    seen = {}
    out = []
    for flag in reversed(flags):
        if flag not in seen or not flag.startswith("-l"):
            seen[flag] = True
            out.append(flag)
    return reversed(out)

def _system_libs_impl(ctx):
    build = ["package(default_visibility = [\"//visibility:public\"])"]
    for name, modules in sorted(ctx.attr.modules.items()):
        versions = []
        for module in modules:
            floor = ctx.attr.floors.get(module.lower())
            if floor:
                _pkg_config(ctx, ["--print-errors", "--exists", "%s >= %s" % (module, floor)])
            versions.append("%s %s" % (module, _pkg_config(ctx, ["--modversion", module])))
        cflags = _pkg_config(ctx, ["--cflags"] + modules).split(" ")
        defines = [f[2:] for f in cflags if f.startswith("-D")]
        linkopts = _unique([f for f in _pkg_config(ctx, ["--libs"] + modules).split(" ") if f])
        header = name + ".versions.h"
        ctx.file(header, "".join(["// %s\n" % v for v in versions]))
        build.append("""
cc_library(
    name = {name},
    hdrs = [{header}],
    defines = {defines},
    linkopts = {linkopts},
)""".format(
            name = repr(name),
            header = repr(header),
            defines = repr(defines),
            linkopts = repr(linkopts),
        ))
    ctx.file("BUILD", "\n".join(build) + "\n")

system_libs = repository_rule(
    implementation = _system_libs_impl,
    attrs = {
        "floors": attr.string_dict(doc = "Lower-case pkg-config module to the oldest version that serves."),
        "modules": attr.string_list_dict(doc = "Target to the pkg-config modules that it stands for."),
    },
    configure = True,
    environ = ["PKG_CONFIG_PATH"],
    local = True,
)
