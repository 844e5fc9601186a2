package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"workflowagent/internal/dev/lab/child"
)

// KubernetesVersion is the version of Kubernetes in the nested module internal/dev/tools/kubernetes.
const KubernetesVersion = "v1.36.3"

const kubernetesBinary = "kubernetes"

// Kubernetes returns the path of a program that is etcd, the API server, the controller manager, the
// scheduler, the kubelet, the proxy or kubectl, as its first argument says. It builds the program if
// necessary, which takes minutes and is reported on progress.
func Kubernetes(ctx context.Context, progress io.Writer) (string, error) {
	version := strings.Split(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	dir, err := buildModule(ctx, progress, kubernetesBinary, []program{{
		name: kubernetesBinary, pkg: ".",
		ldflags: "-X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=" + version[0] +
			" -X k8s.io/component-base/version.gitMinor=" + version[1],
		what: "Kubernetes", expect: "about 7 min",
	}})
	return filepath.Join(dir, kubernetesBinary), err
}

const installBinary = "install"

// Installation is a program that renders the agent's objects for Kubernetes; see
// internal/dev/tools/install.
type Installation struct{ binary, dir string }

// NewInstallation builds the program if necessary, which takes minutes and is reported on progress.
func NewInstallation(ctx context.Context, progress io.Writer) (Installation, error) {
	src, err := toolDir("install")
	if err != nil {
		return Installation{}, err
	}
	dir, err := buildModule(ctx, progress, installBinary, []program{{name: installBinary, pkg: ".", what: "a renderer of charts", expect: "about 2 min"}})
	return Installation{filepath.Join(dir, installBinary), src}, err
}

// Chart returns the objects of a Helm chart, "agent" or "server", with values in YAML.
func (i Installation) Chart(ctx context.Context, chart, namespace, values string) (string, error) {
	return i.render(ctx, values, "chart", chart, namespace)
}

// Program returns the objects of the Pulumi program with a configuration in JSON. It installs the
// packages that the program needs, once per version.
func (i Installation) Program(ctx context.Context, config string) (string, error) {
	return i.render(ctx, config, "program")
}

func (i Installation) render(ctx context.Context, input string, args ...string) (string, error) {
	cmd := child.Command(ctx, i.binary, args...)
	cmd.Dir, cmd.Stdin = i.dir, strings.NewReader(input)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("rendering the %s: %w: %s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
