package policy

import (
	"encoding/json"

	"workflowagent/internal/workflow"
)

// The limits of what one report contains. With them, it is smaller than a request may be.
const (
	maxViolations = workflow.MaxPolicyViolations
	maxFound      = 4 << 20 // bytes of all violations in JSON
)

// found is what the report contains of the violations of one pack.
type found struct {
	violations []workflow.PolicyViolation
	sizes      []int // of each in JSON, in bytes
	bytes      int
	truncated  bool // the pack has reported more
}

// add keeps a violation if even a report about this pack alone had room for it.
func (f *found) add(v workflow.PolicyViolation) {
	data, err := json.Marshal(v) // as in the report, where markup is longer than in the text
	size := len(data) + 1
	if err != nil || len(f.violations) >= maxViolations || f.bytes+size > maxFound {
		f.truncated = true
		return
	}
	f.violations, f.sizes, f.bytes = append(f.violations, v), append(f.sizes, size), f.bytes+size
}

func (f *found) drop() {
	last := len(f.sizes) - 1
	f.bytes -= f.sizes[last]
	f.violations, f.sizes, f.truncated = f.violations[:last], f.sizes[:last], true
}

// fit drops violations until the report has room for the others: always of the pack that takes most of what is short. So
// no pack takes the room of one that reports less.
func fit(all []found) {
	for _, short := range []struct {
		limit int
		size  func(f *found) int
	}{
		{maxViolations, func(f *found) int { return len(f.violations) }},
		{maxFound, func(f *found) int { return f.bytes }},
	} {
		sum := 0
		for i := range all {
			sum += short.size(&all[i])
		}
		for sum > short.limit {
			most := &all[0]
			for i := range all {
				if short.size(&all[i]) > short.size(most) {
					most = &all[i]
				}
			}
			before := short.size(most)
			most.drop()
			sum -= before - short.size(most)
		}
	}
}
