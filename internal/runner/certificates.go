package runner

import (
	"fmt"
	"os"
)

// systemBundles are where systems keep the certificate authorities they trust.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// writeBundle writes a file with the authorities that the place trusts already and
// those of extra. Most tools take one file that replaces their own, so a file with
// only the extra ones would take all others away.
func writeBundle(path, extra, current string) error {
	candidates := systemBundles
	if current != "" {
		candidates = append([]string{current}, candidates...)
	}
	var bundle []byte
	for _, candidate := range candidates {
		if data, err := os.ReadFile(candidate); err == nil && len(data) > 0 {
			bundle = append(data, '\n')
			break
		}
	}
	bundle = append(bundle, extra...)
	if err := os.WriteFile(path, bundle, 0o644); err != nil {
		return fmt.Errorf("writing the certificate authorities for the job: %w", err)
	}
	return nil
}
