// Command kubernetes is the programs of a Kubernetes cluster in one binary, for tests: the first argument names the
// program. Kubernetes does not support being used as a library, so its version is pinned, with etcd in the version of
// its own client.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs constructs the commands of the programs. etcd parses its arguments itself, and is not one of them.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "kubernetes: the first argument must name a program")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	if os.Args[0] == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	construct, ok := programs[os.Args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "kubernetes: no program %q\n", os.Args[0])
		os.Exit(2)
	}
	if os.Args[0] == "kubectl" {
		// kubectl prints its own errors.
		if err := cli.RunNoErrOutput(construct()); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(cli.Run(construct()))
}
