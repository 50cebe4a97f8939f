// The certificate and the private key with which an HTTP server proves who it is, so that it answers over TLS.
#pragma once

#include <memory>
#include <string>

namespace hone {

// TLS 1.2 and 1.3 with a certificate. Its definition is in tls_identity.h, for sources of this room only.
struct TlsIdentity;

// Reads a certificate, followed by those that link it to an authority, and the certificate's private key from files in
// PEM form. With an empty `key_file` the key is in the certificate's file. Returns null if both names are empty. Throws
// Error if a file cannot be read or used, or if the key is not the certificate's; its messages name the options
// ssl_certfile and ssl_keyfile.
[[nodiscard]] std::shared_ptr<TlsIdentity> read_tls_identity(const std::string& certificate_file,
                                                             const std::string& key_file);

}  // namespace hone
