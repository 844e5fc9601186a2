// Package install tests the ways in which the agent and the server are installed in Kubernetes: the
// manifests and the Pulumi program in packaging/kubernetes, and the charts in packaging/helm.
package install
