package states

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
		st, err := Parse([]byte(body), nil)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if st.Resources != want {
			t.Errorf("%s has %d resources, want %d", body, st.Resources, want)
		}
	}
}
