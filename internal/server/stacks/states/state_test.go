package states

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"workflowagent/internal/server/budget"
)

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

// TestImpossibleSizes checks that a damaged size is not mistaken for a lack of memory.
func TestImpossibleSizes(t *testing.T) {
	var packed bytes.Buffer
	err := compress(&packed, func(w io.Writer) error { _, err := io.WriteString(w, `{"version":3}`); return err })
	if err != nil {
		t.Fatal(err)
	}
	body := packed.Bytes()
	body[len(body)-1] = 0x7f
	ctx := budget.With(t.Context(), budget.New(1<<20, time.Second).Share())
	_, err = inflate(ctx, body)
	if _, ok := errors.AsType[*DamagedError](err); !ok {
		t.Errorf("the error is %v, want that the state is damaged", err)
	}
}
