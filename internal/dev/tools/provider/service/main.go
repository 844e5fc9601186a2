// Provider service makes the calls of Pulumi's own provider "pulumiservice", resource by resource.
// Tests run it under the stock CLI to find out whether the server satisfies that provider, which is
// not available as a Go module.
package main

import (
	"context"
	"fmt"
	"os"

	p "github.com/pulumi/pulumi-go-provider"
)

const providerName = "pulumiservice"

// version is the version that the provider reports and is installed under. The package that builds
// it sets it with -ldflags.
var version = "0.1.0"

func main() {
	if err := p.RunProvider(context.Background(), providerName, version, newProvider()); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-pulumiservice:", err)
		os.Exit(1)
	}
}
