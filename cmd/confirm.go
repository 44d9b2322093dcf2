package cmd

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// addYes adds the flag --yes, with which confirm does not ask.
func addYes(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("yes", false, "do not ask for confirmation")
	return cmd
}

// confirm asks question on the terminal, and fails unless the answer is yes. With --yes, it
// does not ask; without a terminal, it fails unless --yes is given.
func confirm(cmd *cobra.Command, question string) error {
	if yes, err := cmd.Flags().GetBool("yes"); yes || err != nil {
		return err
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError(fmt.Errorf("%s Add --yes to confirm it", question))
	}
	cmd.PrintErr(question, " [y/N] ")
	answers := make(chan string)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answers <- line
	}()
	select {
	case <-cmd.Context().Done():
	case answer := <-answers:
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
	}
	return errors.New("not confirmed: nothing was changed")
}
