package stacks

import "testing"

func TestStateCountsItsResources(t *testing.T) {
	for body, want := range map[string]int64{
		`{"version":3,"deployment":{"resources":[{"resources":[1,2]},{}]}}`: 2,
		`{"version":3,"deployment":{"resources":[]}}`:                       0,
		`{"version":3,"deployment":{"resources":null}}`:                     0,
		`{"version":3,"deployment":{}}`:                                     0,
		`{"version":3,"deployment":null}`:                                   0,
		`{}`:                                                                0,
	} {
		st, err := ParseState([]byte(body), nil)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if st.Resources != want {
			t.Errorf("%s has %d resources, want %d", body, st.Resources, want)
		}
	}
}

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
