// Package chromium starts a headless Chromium for tests of the console.
package chromium

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// programs are the names of browsers, in the order in which they are tried. The headless shell
// starts faster and needs half of the memory.
var programs = []string{"chromium-headless-shell", "chromium", "google-chrome"}

// Available reports whether a browser is installed. Otherwise, it returns the reason.
func Available() (reason string, ok bool) {
	if _, err := path(); err != nil {
		return err.Error(), false
	}
	return "", true
}

func path() (string, error) {
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("none of the browsers %v is installed", programs)
}

// Start starts a browser. It returns a context for [chromedp.NewContext] and a function that stops
// the browser.
func Start(ctx context.Context) (browser context.Context, stop func(), err error) {
	program, err := path()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 800))
	allocated, release := chromedp.NewExecAllocator(ctx, options...)
	browser, cancel := chromedp.NewContext(allocated)
	stop = func() {
		cancel()
		release()
	}
	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return browser, stop, nil
}
