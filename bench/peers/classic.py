"""ActiveMQ Classic, by version, from Maven Central by its coordinate, set up as somebody who wants speed would.

Settings: heap up to 2 GiB, KahaDB on the same disk as ours, synced at each commit, files of 64 MiB made beforehand, a
large index cache; AMQP with the transformer "native" (messages stay as they came) and tcpNoDelay, without which answers
wait for 40 ms; producers' credit as ours; no JMX, no advisories, no scheduler, no web console; users checked on login.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.sax.saxutils import quoteattr

from bench.faults import BenchFault
from bench.peers import cache
from bench.peers.artemis import GLOBAL_SIZE_MAX_BYTES
from bench.peers.peer import Peer
from bench.rows import CREDIT

ARTIFACT = "apache-activemq"
HEAP_AT_START, HEAP = "64M", "2G"
BROKER_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" dataDirectory={data} persistent="true"
      useJmx="false" advisorySupport="false" schedulerSupport="false" useShutdownHook="true">
    <destinationPolicy>
      <policyMap>
        <policyEntries>
          <policyEntry queue="&gt;" producerFlowControl="true" optimizedDispatch="true"/>
        </policyEntries>
      </policyMap>
    </destinationPolicy>
    <persistenceAdapter>
      <kahaDB directory={kahadb} enableJournalDiskSyncs="true" journalMaxFileLength="64mb"
        preallocationScope="entire_journal_async" indexCacheSize="100000" indexWriteBatchSize="10000"
        checkForCorruptJournalFiles="false"/>
    </persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="false">
        <users>
          <authenticationUser username={user} password={password} groups="users"/>
        </users>
      </simpleAuthenticationPlugin>
    </plugins>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="{memory}"/></memoryUsage>
        <storeUsage><storeUsage limit="20gb"/></storeUsage>
        <tempUsage><tempUsage limit="20gb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="amqp" uri={uri}/>
    </transportConnectors>
  </broker>
</beans>
"""
TRANSPORT = (
    "amqp://127.0.0.1:{port}?maximumConnections=20000&wireFormat.maxFrameSize=104857600&tcpNoDelay=true"
    "&transport.tcpNoDelay=true&transport.transformer=native&transport.producerCredit={credit}"
)
LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %m%n
"""
STARTED = re.compile(r"Apache ActiveMQ \S+ \(bench, \S+\) started")


class Classic(Peer):
    """One ActiveMQ Classic instance of the given version."""

    kind = "classic"

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(f"classic-{version}", directory)
        self.version = version
        self.instance = directory / "instance"

    def prepare(self) -> None:
        """An instance is a directory with its configuration; the distribution stays where it is."""
        cache.from_maven(ARTIFACT, self.version)
        conf = self.instance / "conf"
        conf.mkdir(parents=True)
        (self.instance / "tmp").mkdir()
        (conf / "log4j2.properties").write_text(LOGGING)
        broker_xml = conf / "activemq.xml"
        broker_xml.touch(mode=0o600)
        broker_xml.write_text(configure(self.instance, self.port, self.user, self.password))

    def command(self) -> list[str]:
        """The JVM itself, so the pid is the broker's."""
        home = cache.from_maven(ARTIFACT, self.version)
        java = shutil.which("java")
        if java is None:
            raise BenchFault("there is no java in the PATH")
        places = {
            "activemq.home": home,
            "activemq.base": self.instance,
            "activemq.conf": self.instance / "conf",
            "activemq.data": self.instance / "data",
            "java.io.tmpdir": self.instance / "tmp",
            "log4j2.configurationFile": self.instance / "conf" / "log4j2.properties",
        }
        settings = [f"-D{name}={value}" for name, value in places.items()]
        opens = ["java.base/java.lang", "java.base/java.util", "java.base/java.util.concurrent", "java.base/java.io"]
        opened = [f"--add-opens={name}=ALL-UNNAMED" for name in opens]
        start = ["-jar", str(home / "bin" / "activemq.jar"), "start", f"xbean:file:{self.instance}/conf/activemq.xml"]
        return [java, f"-Xms{HEAP_AT_START}", f"-Xmx{HEAP}", "-XX:+UseG1GC", *opened, *settings, *start]

    def after_start(self) -> None:
        """The store must be KahaDB: without one, durable messages would stay in memory."""
        text = self.log.read_text(errors="replace")
        if not STARTED.search(text) or "KahaDB" not in text:
            raise BenchFault(f"{self.name} does not say that it has started with KahaDB\n{self.log_end()}")


def configure(instance: Path, port: int, user: str, password: str) -> str:
    """The broker's XML. Pure."""
    return BROKER_XML.format(
        data=quoteattr(str(instance / "data")),
        kahadb=quoteattr(str(instance / "data" / "kahadb")),
        user=quoteattr(user),
        password=quoteattr(password),
        memory=GLOBAL_SIZE_MAX_BYTES,
        uri=quoteattr(TRANSPORT.format(port=port, credit=CREDIT)),
    )
