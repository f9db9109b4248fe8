import type { InstallStep } from '../../cli/machine-steps.ts'

/** Flags that say where the agent is installed. */
export type InstallLocationFlags = {
  'state-dir'?: string | undefined
  user?: string | undefined
  'unit-dir'?: string | undefined
  'dry-run': boolean
}

export type InstallLocation = {
  /** Identity and state of the agent. */
  stateDir: string
  /** Account that it runs as. */
  user: string
  /** What starts it with the machine, as a file. */
  unitFile: string
}

export type Installation = InstallLocation & {
  /** Overrides the address of the enrollment. */
  url: string | undefined
  binary: string
  /** undefined when the machine is already enrolled. */
  enrollmentKey: string | undefined
}

/** What differs by platform in `svc agent install` and `uninstall`. */
export type Installer = {
  /** @throws CliError for a place that cannot be used */
  placeOf(flags: InstallLocationFlags): InstallLocation
  /** Content of `unitFile`. */
  unitText(place: InstallLocation, url: string | undefined): string
  /** Checked before anything is changed. */
  checkPrivileges(flags: InstallLocationFlags, place: InstallLocation): void
  /** Each step can be repeated. */
  installSteps(installation: Installation): InstallStep[]
  /** `purge` also removes what the agent stores. */
  uninstallSteps(place: InstallLocation, purge: boolean): InstallStep[]
  /** Says what is left to do. */
  noteAfterInstall(place: InstallLocation): void
  /** Records a failure where those look who were not there. */
  recordFailure(message: string): void
}
