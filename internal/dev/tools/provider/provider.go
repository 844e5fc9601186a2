package main

import (
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

const providerName = "lab"

// version is the version that the provider reports and is installed under. The
// package that builds it sets it with -ldflags.
var version = "0.1.0"

// newProvider returns the provider with all its resources.
func newProvider() (p.Provider, error) {
	return infer.NewProviderBuilder().
		WithDisplayName("Lab").
		WithDescription("Resources without a cloud, for trials and tests of deployments.").
		WithResources(
			infer.Resource(File{}),
			infer.Resource(Record{}),
			infer.Resource(Random{}),
			infer.Resource(Sleep{}),
		).
		Build()
}
