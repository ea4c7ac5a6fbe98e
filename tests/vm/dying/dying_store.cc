// Steps around what goes to the store of descriptors: this stands between it and NotifySocket by
// the linker's --wrap. What the service manager is told otherwise does not come here, since
// NotifySocket then calls itself.
#include "daemon/host/notify_socket.h"
#include "tests/vm/dying/steps.h"

// NotifySocket::TrySend, as the compiler names it; its object is the first argument.
#define TRY_SEND                        \
  "_ZNK3mrd4host12NotifySocket7TrySend" \
  "ESt17basic_string_viewIcSt11char_traitsIcEENS1_8PatienceEi"

using mrd::host::NotifySocket;

int Real(const NotifySocket* socket, std::string_view message, NotifySocket::Patience patience,
         int fd) asm("__real_" TRY_SEND);
int Wrap(const NotifySocket* socket, std::string_view message, NotifySocket::Patience patience,
         int fd) asm("__wrap_" TRY_SEND);

int Wrap(const NotifySocket* socket, std::string_view message, NotifySocket::Patience patience,
         int fd) {
  const dying::Stepped stepped(fd >= 0 ? "a descriptor goes into the store"
                                       : "a descriptor leaves the store");
  return Real(socket, message, patience, fd);
}
