// Package guard turns panics into errors, so that one piece of work does not end the program.
package guard

import (
	"fmt"
	"runtime/debug"
)

// Run calls fn. If fn panics, Run returns an error with the stack.
func Run(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}
