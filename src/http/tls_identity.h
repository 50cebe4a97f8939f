// The definition of TlsIdentity. For sources of this room only, because it includes Boost.Asio and OpenSSL.
#pragma once

#include <boost/asio/ssl.hpp>

#include "http/tls.h"

namespace hone {

struct TlsIdentity {
  boost::asio::ssl::context context{boost::asio::ssl::context::tls_server};
};

}  // namespace hone
