package recent

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Map[int]{Age: time.Minute}
		check := func(key string, want int) {
			t.Helper()
			if got, ok := m.Get(key); got != want || ok != (want != 0) {
				t.Errorf("%s is %d, %t; want %d", key, got, ok, want)
			}
		}
		check("a", 0)
		m.Put("a", 1, time.Now().Add(-m.Age/2))
		check("a", 1)
		create := func() int { return 2 }
		if got := m.GetOr("a", create); got != 1 {
			t.Errorf("a is %d, want the kept value", got)
		}
		time.Sleep(m.Age / 2)
		check("a", 0) // the value is as old as its read
		if got := m.GetOr("a", create); got != 2 {
			t.Errorf("a is %d, want a new value", got)
		}
		check("a", 2)
		m.Forget("a")
		check("a", 0)

		m.Put("a", 1, time.Now())
		time.Sleep(2 * m.Age)
		m.Put("b", 1, time.Now())
		if len(m.values) != 1 {
			t.Errorf("%d values are kept, want 1", len(m.values))
		}
		const many = 5000
		for i := range many {
			m.GetOr(fmt.Sprint(i), create)
		}
		for i := range many {
			check(fmt.Sprint(i), 2)
		}
	})
}
