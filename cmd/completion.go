package cmd

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script with which a shell completes commands, flags and their values",
		Long: "Print a script with which a shell completes commands, flags and their values. In bash, it\n" +
			"needs the package bash-completion.",
		Example: "  source <(plantstore completion bash)                # in ~/.bashrc\n" +
			"  source <(plantstore completion zsh)                 # in ~/.zshrc, after compinit\n" +
			"  plantstore completion fish | source                 # in ~/.config/fish/config.fish\n" +
			"  plantstore completion powershell | Out-String | Invoke-Expression",
		Args:      takes(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(os.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(os.Stdout)
			case "fish":
				return root.GenFishCompletion(os.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(os.Stdout)
			}
			return usageError(fmt.Errorf("no completion for the shell %q: use %s", args[0], strings.Join(cmd.ValidArgs, ", ")))
		},
	}
}
