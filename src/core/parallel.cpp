#include "core/parallel.h"

#include <omp.h>

namespace hone {

int thread_count() { return omp_get_max_threads(); }
void set_thread_count(int count) { omp_set_num_threads(count < 1 ? 1 : count); }

}  // namespace hone
