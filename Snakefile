"""Quietgate: what speculative steps and NCCL settings do to an SGLang server.

snakemake --cores 1 all                                    the default study (config/config.yaml)
snakemake --cores 1 all --configfile my-study.yaml         yours
snakemake --cores 1 share                                  an archive for reviewers
snakemake --cores 1 figures --config results=PATH          redraw and compare what somebody shared
"""

import sys
from snakemake.utils import min_version

min_version("9.27")
sys.path.insert(0, f"{workflow.basedir}/workflow/lib")

# A config file named on the command line is the whole study, not a patch of the default one.
if not workflow.configfiles and "results" not in config:

    configfile: f"{workflow.basedir}/config/config.yaml"


include: "workflow/rules/common.smk"


if REVIEWER:

    include: "workflow/rules/reviewer.smk"

else:

    include: "workflow/rules/server.smk"
    include: "workflow/rules/offline.smk"
    include: "workflow/rules/share.smk"

    if EMBEDDED or TINY_MODELS:

        include: "workflow/rules/embedded.smk"
