#include "system/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace hone {

void allow_open_files(std::uint64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t raised = std::min(static_cast<rlim_t>(count), limit.rlim_max);
  if (limit.rlim_cur >= raised) return;
  limit.rlim_cur = raised;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace hone
