// Threads of the library's own.
#ifndef MRD_CLIENT_LIBRARY_THREAD_H_
#define MRD_CLIENT_LIBRARY_THREAD_H_

#include <signal.h>

#include <thread>
#include <utility>

namespace mrd::internal {

// Runs `body` on a new thread, on which no signal handler of the process's runs: they are not made
// for a thread that it knows nothing of.
template <typename Body>
std::thread StartThread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace mrd::internal

#endif  // MRD_CLIENT_LIBRARY_THREAD_H_
