// Provider lab is a small Pulumi provider whose resources have real side effects
// that can be seen and counted outside Pulumi. The quickstart, the end-to-end
// tests and the benchmarks use it instead of a cloud.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	provider, err := newProvider()
	if err == nil {
		err = provider.Run(context.Background(), providerName, version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-lab:", err)
		os.Exit(1)
	}
}
