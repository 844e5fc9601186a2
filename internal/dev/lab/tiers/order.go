package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// parallelTests is the value of go test's flag -parallel for an end-to-end package. It does not
// depend on the number of processors, because the tests mostly wait.
const parallelTests = "6"

// parallelMachines replaces parallelTests for tests that each boot a machine.
const parallelMachines = "3"

// atOnce is how many tiers run at the same time.
const atOnce = 4

// tiers returns the tiers in the order in which they start: the longest first, and those that mostly wait next to
// those that need the processors.
func tiers() []tier {
	always := func(context.Context) string { return "" }
	return []tier{
		{name: "race", what: "packages with concurrency, with the race detector", missing: always, test: (*suite).raced},
		{name: "engine", what: "deployments in containers of a real Docker Engine", missing: engineMissing, test: (*suite).engine},
		{name: "postgres", what: "the server's components, with SQLite and PostgreSQL", missing: postgresMissing, test: (*suite).postgres},
		{name: "init", what: "the agent as a systemd service on a booted machine", missing: initMissing, test: e2e("init", parallelMachines)},
		{name: "clients", what: "the stock pulumi CLI against a real server and agents", missing: clientsMissing, test: e2e("clients", parallelTests)},
		{name: "cluster", what: "deployments in pods of a real Kubernetes", missing: clusterMissing, test: (*suite).cluster},
		{name: "faults", what: "processes killed and connections cut under running deployments", missing: clientsMissing, test: e2e("faults", parallelTests)},
		{name: "browser", what: "the console in a real browser", missing: browserMissing, test: e2e("browser", parallelTests)},
		{name: "unit", what: "unit tests of the other packages", missing: always, test: (*suite).unit},
		{name: "packages", what: "a release's content and signatures, and that its build is reproducible", missing: packagesMissing, test: e2e("packages", parallelTests)},
		{name: "install", what: "manifests, charts and the Pulumi program for Kubernetes, in their own module", missing: installMissing, test: (*suite).install},
		{name: "evaluator", what: "the evaluator of environments and its sandbox, in their own module", missing: always, test: (*suite).evaluator},
		{name: "pages", what: "the console's scripts, templates and colours, in their own module", missing: always, test: (*suite).pages},
		{name: "provider", what: "the example provider, in its own module", missing: clientsMissing, test: (*suite).provider},
	}
}

// choose returns the tiers named in a comma-separated list, or all for "".
func choose(all []tier, list string) ([]tier, error) {
	if list == "" {
		return all, nil
	}
	wanted := strings.Split(list, ",")
	chosen := slices.DeleteFunc(all, func(t tier) bool { return !slices.Contains(wanted, t.name) })
	if len(chosen) != len(wanted) {
		return nil, fmt.Errorf("-only %s: not every name is a tier", list)
	}
	return chosen, nil
}

// inTurn calls work for each tier, for up to most tiers at the same time, in their order.
func inTurn(all []tier, most int, work func(tier)) {
	var running errgroup.Group
	running.SetLimit(most)
	for _, t := range all {
		running.Go(func() error {
			work(t)
			return nil
		})
	}
	_ = running.Wait()
}
