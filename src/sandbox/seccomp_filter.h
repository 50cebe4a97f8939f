// What a program in the sandbox may not ask the kernel.
#pragma once

#include <string>

namespace hone {

// A filter as `bwrap --seccomp` reads it (classic BPF, made by libseccomp): system calls that reach beyond the sandbox,
// hold memory that no limit counts, or have no place in a program that reads and prints, fail with EPERM; those of
// another architecture kill. Throws Error.
[[nodiscard]] std::string seccomp_filter();

}  // namespace hone
