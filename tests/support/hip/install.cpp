// Makes the emulated GPU available to the tests of a program that links it.
#include "support/device.h"
#include "support/hip/device.h"

namespace hone::test {
namespace {

[[maybe_unused]] const bool installed = [] {
  emulated_device = emulation::device;
  return true;
}();

}  // namespace
}  // namespace hone::test
