package stacks

import "testing"

func TestStatusTable(t *testing.T) {
	all := []Status{NotStarted, Running, Succeeded, Failed, Cancelled}
	allowed := map[[2]Status]bool{
		{NotStarted, Running}: true, {Running, Succeeded}: true, {Running, Failed}: true, {Running, Cancelled}: true,
	}
	for _, from := range all {
		for _, to := range all {
			if got := from.CanBecome(to); got != allowed[[2]Status{from, to}] {
				t.Errorf("%q can become %q: %v", from, to, got)
			}
		}
	}
}
