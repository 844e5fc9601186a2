package docker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/user"
	"strings"

	"github.com/moby/moby/client"
)

func explain(host string, err error) error {
	var timeout net.Error
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	text := err.Error()
	switch {
	case errors.As(err, &verification), strings.Contains(text, "x509: "):
		return &engineError{cause: err, text: fmt.Sprintf("the certificate of the Docker Engine at %s cannot be verified (%s): is ca.pem in DOCKER_CERT_PATH, or that of the docker context, the engine's?", host, lastPart(text))}
	case errors.As(err, &alert), strings.Contains(text, "remote error: tls: "):
		return &engineError{cause: err, text: fmt.Sprintf("the Docker Engine at %s does not accept the agent's certificate (%s): are cert.pem and key.pem in DOCKER_CERT_PATH, or those of the docker context, made for it?", host, lastPart(text))}
	case strings.Contains(text, "HTTP request to an HTTPS server"), strings.Contains(text, "without TLS"):
		return &engineError{cause: err, text: fmt.Sprintf("the Docker Engine at %s wants TLS: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the directory of ca.pem, cert.pem and key.pem", host)}
	case errors.Is(err, fs.ErrPermission):
		name := "the agent's user"
		if u, uErr := user.Current(); uErr == nil {
			name = u.Username
		}
		return &engineError{cause: err, text: fmt.Sprintf("%s may not use the Docker Engine at %s: add the user to the group docker (which is root-equivalent), or run a rootless engine and set DOCKER_HOST to its socket", name, host)}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &engineError{cause: err, text: fmt.Sprintf("the Docker Engine at %s did not answer within %s: is it overloaded or hanging?", host, pingPatience)}
	case client.IsErrConnectionFailed(err), errors.Is(err, fs.ErrNotExist):
		return &engineError{cause: err, text: fmt.Sprintf("no Docker Engine answers at %s: start it, or set DOCKER_HOST to where it is", host)}
	}
	return fmt.Errorf("asking the Docker Engine at %s: %w", host, err)
}

func lastPart(text string) string {
	for _, mark := range []string{"x509: ", "tls: "} {
		if _, after, ok := strings.Cut(text, mark); ok {
			return engineText(after)
		}
	}
	return engineText(text)
}

type engineError struct {
	text  string
	cause error
}

func (e *engineError) Error() string { return e.text }
func (e *engineError) Unwrap() error { return e.cause }
