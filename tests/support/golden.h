// Text that is frozen in a fixture.
#pragma once

#include <string_view>

namespace hone::test {

// Expects that `text` is the content of tests/fixtures/RELATIVE. With HONE_UPDATE_FIXTURES set in the environment the
// fixture is written instead, and the test fails, so that it is looked at.
void expect_golden(std::string_view relative, std::string_view text);

}  // namespace hone::test
