import { join } from 'node:path'

export const taskName = 'svc-agent'

/** The task as it is registered, in the encoding that schtasks reads. */
export const taskFile = (stateDir: string): string => join(stateDir, 'task.xml')

/** Windows takes a file in UTF-16 by its byte order mark. */
export const taskBytes = (text: string): Buffer => Buffer.from(`\ufeff${text}`, 'utf16le')

export type TaskOptions = {
  binary: string
  /** Where an update leaves the program that it replaces. */
  displaced: string
  stateDir: string
  url: string | undefined
  /** cmd.exe */
  shell: string
}

/**
 * The scheduled task of the agent, as SYSTEM. Its first action puts the program back where a machine stopped between the two renames
 * of an update. It begins with the machine, and again within a minute of its end: what ends it, a fault
 * or an update, does not matter. Windows restarts a task for some failures alone, and an exit code is none of them.
 */
export function taskText({ binary, displaced, stateDir, url, shell }: TaskOptions): string {
  const args = ['run', '--state-dir', stateDir, '--no-input', ...(url === undefined ? [] : ['--url', url])]
  const again = `<Repetition>
        <Interval>PT1M</Interval>
        <StopAtDurationEnd>false</StopAtDurationEnd>
      </Repetition>`
  return `<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Author>svc</Author>
    <Description>svc agent: reports this machine to its service</Description>
    <URI>\\${taskName}</URI>
  </RegistrationInfo>
  <Triggers>
    <BootTrigger>
      ${again}
      <Enabled>true</Enabled>
    </BootTrigger>
    <TimeTrigger>
      ${again}
      <StartBoundary>2020-01-01T00:00:00</StartBoundary>
      <Enabled>true</Enabled>
    </TimeTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>S-1-5-18</UserId>
      <RunLevel>HighestAvailable</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <AllowHardTerminate>true</AllowHardTerminate>
    <StartWhenAvailable>true</StartWhenAvailable>
    <RunOnlyIfNetworkAvailable>false</RunOnlyIfNetworkAvailable>
    <IdleSettings>
      <StopOnIdleEnd>false</StopOnIdleEnd>
      <RestartOnIdle>false</RestartOnIdle>
    </IdleSettings>
    <AllowStartOnDemand>true</AllowStartOnDemand>
    <Enabled>true</Enabled>
    <Hidden>true</Hidden>
    <RunOnlyIfIdle>false</RunOnlyIfIdle>
    <WakeToRun>false</WakeToRun>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Priority>5</Priority>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>${xml(shell)}</Command>
      <Arguments>${xml(`/d /c if not exist "${binary}" move "${displaced}" "${binary}"`)}</Arguments>
    </Exec>
    <Exec>
      <Command>${xml(binary)}</Command>
      <Arguments>${xml(args.map(argument).join(' '))}</Arguments>
    </Exec>
  </Actions>
</Task>
`
}

/** Paths of Windows have no quotation marks, and an address has them encoded. */
const argument = (text: string): string => (/^[\w-]+$/.test(text) ? text : `"${text}"`)

const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const xml = (text: string): string => text.replace(/[&<>"]/g, (char) => entities[char]!)
