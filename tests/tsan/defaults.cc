// What every program that is built with --config=tsan does where TSAN_OPTIONS says nothing.
extern "C" const char* __tsan_default_options() {
  // Where a stack cannot be restored nothing is suppressed: a long history. Tests fork and start
  // threads in the child.
  return "ignore_noninstrumented_modules=1:history_size=7:die_after_fork=0";
}

// Debian's libraries are not instrumented: what they do under locks, counts and queues of their own
// looks like a race.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         // Also what gRPC's headers put into the program: a call's operations come out of a queue
         // that is not seen.
         "race:^grpc::\n"
         "race:^grpc_core::\n"
         "race:^grpc_event_engine::\n"
         // A Status counts who shares it.
         "race:absl::debian3::status_internal\n"
         "race:libabsl_status\n"
         "race:libabsl_cord\n"
         "race:libabsl_graphcycles\n";
}
