// The words that stand for what ProbeClient does.
#ifndef TESTS_VM_PROBE_COMMANDS_H_
#define TESTS_VM_PROBE_COMMANDS_H_

#include "tests/vm/probe/client.h"
#include "tests/vm/probe/words.h"

namespace probe {

extern const char kCommands[];  // For --help.

// IsMisspoken: these words are no command.
Answer RunCommand(ProbeClient& client, const Words& words);

}  // namespace probe

#endif  // TESTS_VM_PROBE_COMMANDS_H_
