package main

import "strings"

// engineMatters are the packages that the race detector checks with SQLite and PostgreSQL: their goroutines share
// connections and transactions.
var engineMatters = names(`server/store server/store/blob server/store/database`)

// concurrent are the other packages that the race detector checks. Packages that also test with PostgreSQL are
// checked with SQLite only, because their goroutines are the same with both.
var concurrent = []struct {
	why      string
	packages []string
}{
	{
		"They run loops and child processes concurrently.",
		names(`agent agent/control agent/executor/process agent/executor/workspacedir agent/health agent/workspace checkup delivery
			host/daemon sys/initsystem
			runner runner/credentials runner/languagehost runner/policy runner/process runner/steps runner/workspace reach protocol`),
	},
	{
		"They run the server's loops, or test what happens at the same time.",
		names(`server server/acme server/backup server/deployments server/due server/gitops/dispatch server/runners server/stacks/states server/webhooks`),
	},
	{
		"Requests and loops share their values in memory.",
		names(`agent/pooltoken connlimit host/upkeep memlimit server/certfile server/api/forges server/api/request server/api/system server/api/web server/budget
			server/console/assets server/console/page server/environments/evaluator server/environments/providers server/identity/attempts server/identity/issuer server/identity/keyring
			server/identity/oidc server/identity/signin/openid server/joblog server/policies server/policies/evaluations server/pools server/recent server/stacks server/stacks/events
			server/stacks/lru server/stacks/mask server/vcs/forges/github server/vcs/forges/refs server/vcs/integrations`),
	},
}

// partly are packages of which the race detector checks the test with goroutines, and not those that measure cost.
// The tier unit runs all of their tests.
var partly = map[string]string{product + "/redact": "TestAddWhileStreaming"}

// unraced are packages with concurrency that the race detector does not check, and why.
var unraced = map[string]string{
	"agent/executor/kubernetes/podspec": "its template is parsed once, before anything uses it",
}

// names returns the import paths of packages.
func names(list string) []string {
	packages := strings.Fields(list)
	for i, p := range packages {
		packages[i] = product + "/" + p
	}
	return packages
}

func racedOnBoth() []string { return engineMatters }

func racedOnOne() []string {
	var all []string
	for _, group := range concurrent {
		all = append(all, group.packages...)
	}
	return all
}
