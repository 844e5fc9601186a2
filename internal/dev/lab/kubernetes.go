package lab

import (
	"context"
	"io"
	"path/filepath"
	"strings"
)

// KubernetesVersion is the version of Kubernetes in the nested module internal/dev/tools/kubernetes.
const KubernetesVersion = "v1.36.3"

const kubernetesBinary = "kubernetes"

// Kubernetes returns the path of a program that is etcd, the API server, the controller manager, the
// scheduler, the kubelet, the proxy or kubectl, as its first argument says. It builds the program if
// necessary, which takes minutes and is reported on progress.
func Kubernetes(ctx context.Context, progress io.Writer) (string, error) {
	build, err := newBuilder(ctx, progress)
	if err != nil {
		return "", err
	}
	version := strings.Split(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	dir, err := build.module(ctx, kubernetesBinary, []program{{
		name: kubernetesBinary, pkg: ".",
		ldflags: "-X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=" + version[0] +
			" -X k8s.io/component-base/version.gitMinor=" + version[1],
		what: "Kubernetes", expect: "about 7 min",
	}})
	return filepath.Join(dir, kubernetesBinary), err
}
