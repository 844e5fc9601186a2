package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"workflowagent/internal/agent/mirror"
	"workflowagent/internal/imageref"
	"workflowagent/internal/protocol"
	"workflowagent/internal/settings"
)

// Validate reports whether an agent can run with the configuration. The error lists every problem
// on its own line, with the file and line or the variable of the value.
func (c *Config) Validate() error {
	var wrong settings.Problems
	fail := func(key, what string) { wrong.Add(c.Source(key), key, what) }
	c.validateIdentity(fail)
	c.validatePlaces(fail)
	c.validateLists(fail)
	c.validateProxy(&wrong)
	if c.Retry.MaxWait < c.Retry.Wait {
		fail("request_retry_max_wait", fmt.Sprintf("is shorter than request_retry_wait (%s): make it at least as long", c.Retry.Wait))
	}
	if c.HTTPServerPort != 0 && !isHost(c.HTTPServerAddress) {
		fail("http_server_address", "is neither an IP address nor a host name: write either without a port, such as 127.0.0.1, or * for all addresses")
	}
	return wrong.Err(c.Token)
}

func (c *Config) validateIdentity(fail func(key, what string)) {
	if c.UsesOIDC() {
		if c.OrganizationName == "" {
			fail("organization_name", "is required because oidc_token_file is set: set it to the name of the pool's organization")
		}
		if c.RunnerPoolID == "" {
			fail("runner_pool_id", "is required because oidc_token_file is set: set it to the ID of the pool")
		}
		return
	}
	token := c.Token.Reveal()
	switch {
	case token == "":
		fail("token", "is required: set it to the token of an agent pool, in the file or with "+envPrefix+"TOKEN")
	case !c.HasToken():
		fail("token", "is still the sample's placeholder: replace it with the token of an agent pool")
	case strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		fail("token", "contains white space or control characters: paste the token again, as one word")
	case len(token) > 8192:
		fail("token", "is longer than 8192 characters: paste the token again")
	}
}

// HasToken reports whether a token other than the sample's placeholder is set.
func (c *Config) HasToken() bool {
	token := c.Token.Reveal()
	return token != "" && token != "pul-xxx" && strings.Trim(token, "<>") != "token"
}

func (c *Config) validatePlaces(fail func(key, what string)) {
	if c.ServiceURL == "" {
		fail("service_url", "is required: set it to the URL of the control plane")
	}
	switch c.DeployTarget {
	case TargetDocker, TargetProcess:
	case TargetKubernetes:
		c.validateKubernetes(fail)
	default:
		fail("deploy_target", "is not one of the allowed values: choose docker, kubernetes or process")
	}
	c.validateMirror(fail)
	if !filepath.IsAbs(c.WorkingDirectory) {
		fail("working_directory", "is unknown: set it to the directory of the runner binaries")
	}
	if !filepath.IsAbs(c.StateDirectory) {
		fail("state_directory", "is unknown: set it to a directory of the agent's user")
	}
	if _, err := c.CACertificates(); err != nil {
		fail("ca_certificate_file", err.Error())
	}
	if c.Docker.Network != "" && !networkName().MatchString(c.Docker.Network) {
		fail("docker_network", "is not a network name: use letters, digits, dots, dashes and underscores")
	}
	if at, err := netip.ParseAddrPort(c.Docker.ServerAddress); c.Docker.ServerAddress != "" &&
		(err != nil || at.Addr().IsLoopback() || at.Addr().IsUnspecified()) {
		fail("docker_server_address", "is not an address that containers can reach: write an IP address that is not on loopback, and a port")
	}
}

func (c *Config) validateMirror(fail func(key, what string)) {
	location := c.Mirror.Location
	switch {
	case location == "":
		return
	case c.DeployTarget == TargetKubernetes:
		fail("pulumi_mirror", "has no effect in Kubernetes: remove it, and use images with the versions of pulumi that jobs select")
	case !filepath.IsAbs(location) && !mirror.IsURL(location):
		fail("pulumi_mirror", "is neither the absolute path of a directory nor a URL: write it like /srv/pulumi or https://mirror.example.com/pulumi")
	}
	if c.Mirror.Checksums == "" {
		fail("pulumi_checksums_file", "is required because pulumi_mirror is set: name a file with the SHA-256 sums of the archives")
	} else if _, err := mirror.ReadChecksums(c.Mirror.Checksums); err != nil {
		fail("pulumi_checksums_file", "cannot be used: "+err.Error())
	}
}

func (c *Config) validateKubernetes(fail func(key, what string)) {
	if c.Pods.AgentImage == "" {
		fail("image", "is required because deploy_target is kubernetes: set "+envPrefix+"IMAGE to the image of this agent's release")
	}
	if protocol.OnLoopback(c.ServiceURL) {
		fail("service_url", "is on loopback, which pods cannot reach: set it to an address of the server that pods can reach")
	}
	if c.Pods.Namespace != "" && !namespaceName().MatchString(c.Pods.Namespace) {
		fail("kubernetes_namespace", "is not the name of a namespace: use at most 63 lower-case letters, digits and dashes")
	}
}

// CACertificates returns the PEM text of ca_certificate_file, or nil if the key is not set. The
// text contains at least one certificate.
func (c *Config) CACertificates() ([]byte, error) {
	if c.CACertificateFile == "" {
		return nil, nil
	}
	f, err := os.OpenFile(c.CACertificateFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: correct the path or the permissions: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written, so the error can be ignored
	data, err := io.ReadAll(io.LimitReader(f, maxBundleSize+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: correct the path or the permissions: %w", err)
	}
	if len(data) > maxBundleSize {
		return nil, errors.New("is larger than 16 MiB: check that it is the right file")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return nil, errors.New("contains no certificate: name a file with PEM blocks of the type CERTIFICATE")
	}
	return data, nil
}

const maxBundleSize = 16 << 20 // bytes; real files are much smaller

func (c *Config) validateLists(fail func(key, what string)) {
	switch {
	case len(c.EnabledWorkflowTypes) == 0:
		fail("enabled_workflow_types", settings.ErrEmptyList.Error())
	case !slices.Contains(c.EnabledWorkflowTypes, typeDeployment) && !slices.Contains(c.EnabledWorkflowTypes, typePolicy):
		fail("enabled_workflow_types", "has no type that this version can run: add "+typeDeployment+" or "+typePolicy)
	}
	for i, name := range c.EnvForwardAllowlist {
		switch {
		case !variableName().MatchString(name):
			fail("env_forward_allowlist", fmt.Sprintf("has an entry that is not a variable name, number %d: %s", i+1, nameRemedy(name)))
		case name == envPrefix+"TOKEN":
			fail("env_forward_allowlist", "names "+name+": remove the entry, because jobs must not get the agent's own token")
		}
	}
	validatePatterns("allowed_images", c.AllowedImages, fail, "image", "host/path/* or host/path/*:tag", func(pattern string) bool {
		_, ok := parseImagePattern(pattern)
		return ok
	})
	if c.Agent.OverrideImageReference != "" {
		if _, err := imageref.Parse(c.Agent.OverrideImageReference); err != nil {
			fail("override_image_reference", "is not the name of an image: "+err.Error())
		}
	}
	validatePatterns("allowed_repositories", c.AllowedRepositories, fail, "repository", "host/path/*", isRepositoryPattern)
}

func validatePatterns(key string, patterns []string, fail func(key, what string), what, example string, valid func(string) bool) {
	for i, pattern := range patterns {
		if strings.Contains(pattern, "://") || strings.ContainsFunc(pattern, unicode.IsSpace) {
			fail(key, fmt.Sprintf("has an entry with a scheme or white space, number %d: write it like host/path/*", i+1))
		} else if !valid(pattern) {
			fail(key, fmt.Sprintf("has an entry that can match no %s, number %d: write it like %s", what, i+1, example))
		}
	}
}

// nameRemedy returns how to write an entry that is not the name of a variable. The entry itself could
// be a secret.
func nameRemedy(entry string) string {
	switch {
	case strings.ContainsAny(entry, `,;[]"'`):
		return "separate the names with spaces in the variable, such as \"A B\", or write a list in the file"
	case strings.ContainsAny(entry, "*?"):
		return "write each name, because patterns are not supported"
	case strings.Contains(entry, "="):
		return "write only the name, because the value comes from the agent's environment"
	default:
		return "use letters, digits and underscores"
	}
}

func networkName() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`) }

func namespaceName() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
}
func variableName() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) }

func isHost(s string) bool {
	if s == anyAddress || net.ParseIP(s) != nil {
		return true
	}
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`).MatchString(s)
}
